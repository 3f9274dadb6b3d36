"""English and Portuguese word lists to recognize and classify names."""

from __future__ import annotations

import re


def _split_words(words: str) -> frozenset[str]:
    return frozenset(words.split())


SENTENCE_STARTERS = _split_words(
    """a an the this that these those it he she they we you i his her its their our my your who
    what which when where why how if in on at by for from with without of to and or but as so
    because while although though since until before after during under over between among about
    against into through is are was were be has have had do does did can may must shall will
    would should could not no nor all any both each every few many most much other some such
    only also however therefore moreover furthermore finally first second third then there here
    now later today once two three four five six seven eight nine ten one another additionally
    according despite instead indeed thus hence meanwhile several yet upon unless except given
    based born let please note see dear table figure section chapter page part article clause
    appendix annex total date name description summary introduction conclusion o os as um uma
    uns umas este esta estes estas esse essa isto isso aquele aquela ele ela eles elas eu nós
    você vocês seu sua seus suas meu minha nosso nossa quem que qual quais quando onde porque
    como se em no na nos nas ao aos à às do da dos das de por pelo pela pelos pelas para com sem
    sobre sob entre até desde após antes durante contra e ou mas porém contudo todavia
    entretanto portanto assim também ainda já não nem todo toda todos todas cada muito muita
    muitos muitas outro outra outros outras algum alguma alguns algumas nenhum nenhuma é são foi
    foram era eram ser há tem têm tinha pode podem deve devem primeiro segundo terceiro depois
    agora hoje aqui ali lá além apesar embora enquanto conforme segundo caso tais tal dois duas
    três quatro cinco seis sete oito nove dez mais menos ambos numa num dentre perante diante
    inicialmente atualmente posteriormente finalmente tabela figura seção capítulo página parte
    artigo cláusula anexo resumo introdução conclusão nome data descrição nascido nascida filho
    filha"""
)
"""Capitalized at the start of a sentence without being names."""

CONNECTORS = _split_words("de da do das dos d di del della du von van der den ter la le y")
INSTITUTION_HEADS = _split_words(
    """university college school institute academy bank ministry department office board council
    committee commission court agency association society foundation federation union
    organization organisation museum library church hospital centre center company group
    republic kingdom house bureau national international royal league party army chamber state
    universidade faculdade escola instituto academia banco ministério departamento secretaria
    conselho comitê comissão tribunal agência associação sociedade fundação federação união
    organização records parliament authority systems solutions technologies laboratories
    industries holdings partners services bros fund parlamento procuradoria procuradoria-geral
    autoridade infraestrutura sindicato confederação cooperativa fundo construtora editora rádio
    museu biblioteca igreja hospital centro companhia grupo câmara senado prefeitura governo
    partido polícia exército corte turma vara defensoria procuradoria supremo superior"""
)
"""Words for institutions, after which `of`, `the`, `for`, `and` and `e` continue a name."""

ORG_HEADS = INSTITUTION_HEADS - _split_words(
    "republic kingdom house national international royal state united"
)
COMPANY_SUFFIXES = _split_words(
    """inc corp corporation co company ltd limited llc llp plc lda ltda s.a s.a. s/a sa gmbh ag
    b.v b.v. bv nv n.v spa eireli inc. corp. co. ltd. lda. ltda. incorporated l.l.c l.l.c."""
)

DEFINITION_WORDS = _split_words(
    """a an the this its his her their or and as to also hereinafter hereafter herein referred
    called known sometimes simply being affiliates subsidiaries o os e ou à seu sua como doravante
    adiante denominado denominada designado designada chamado chamada simplesmente apenas aqui der
    die das den dem ein eine und oder als auch kurz nur genannt bezeichnet nachfolgend nachstehend
    im folgenden"""
)
"""Words around a defined term, besides which a definition has none."""

# Singular: a plural stands for several parties.
PARTY_ROLES = _split_words(
    """advertiser adviser advisor affiliate agency agent assignee assignor bank borrower broker
    buyer carrier celebrity client company consultant contractor corporation creditor customer
    debtor depositor developer director distributor employee employer escrow executive fabricator
    founder franchisee franchisor fund grantee grantor guarantor holder insurer investor issuer
    landlord lender lessee lessor licensee licensor manager manufacturer marketer merchant
    mortgagor operator owner parent partner partnership principal producer promoter provider
    publisher purchaser recipient reseller retailer seller servicer shareholder shipper sponsor
    subcontractor subsidiary supplier talent tenant transporter trust trustee underwriter vendor
    adquirente agente anunciante arrendador arrendadora arrendataria arrendatario banco cedente
    cessionaria cessionario cliente comodante comodataria comodatario compradora comprador
    consultora consultor contratada contratado contratante credora credor devedora devedor
    distribuidora distribuidor emissora fiador fiadora fornecedora fornecedor franqueada
    franqueado franqueadora franqueador investidora investidor licenciada licenciado licenciante
    locadora locador locataria locatario mutuante mutuaria mutuario outorgada outorgado outorgante
    patrocinadora patrocinador prestadora prestador proprietaria proprietario seguradora
    representada representante tomadora tomador transportadora vendedora vendedor arbeitgeber
    arbeitgeberin auftraggeber auftraggeberin auftragnehmer auftragnehmerin anbieter bank berater
    besteller darlehensgeber darlehensnehmer dienstleister gesellschaft kaufer kauferin kunde
    lieferant lizenzgeber lizenzgeberin lizenznehmer lizenznehmerin mieter mieterin vermieter
    vermieterin verkaufer verkauferin verpachter pachter"""
)
"""Roles of parties in contracts, without accents."""

SMALL_WORDS = _split_words(
    "of the and for in on to at by de da do das dos e em para der die das des und fur im"
)

PLACE_HEADS = _split_words(
    """river lake mount mountain mountains street avenue road city county province island
    islands bay valley north south east west northern southern eastern western ocean sea coast
    peninsula region republic kingdom oceano mar costa península região república reino
    aeroporto airport parque park rua avenida praça cidade município bairro rio lago serra ilha
    ilhas estado província vila porto baía vale norte sul leste oeste"""
)
LABELS = _split_words(
    "cnpj cpf nif iban vat rg cep eur usd gbp brl chf pdf html id url tel fax "
    "isbn issn doi am pm ok"
)
"""Labels of values, written like acronyms."""

THING_HEADS = _split_words(
    """war battle treaty agreement act bill law code constitution award prize album games cup
    olympics series project plan programme program age day festival championship directive
    regulation guerra batalha tratado acordo lei decreto constituição código prêmio prémio álbum
    jogos copa série projeto plano programa idade dia festival campeonato diretiva regulamento
    carta emenda"""
)
ABBREVIATED_TITLES = _split_words("mr mrs ms dr prof sr sra srs dra")
TITLES = ABBREVIATED_TITLES | _split_words(
    """mr mrs ms dr prof sir lord lady king queen president judge senator captain general saint
    sr sra srs dra professor professora presidente ministro ministra juiz juíza desembargador
    desembargadora senador deputado dom dona papa rei rainha general relator relatora"""
)
PLACE_PREPOSITIONS = _split_words("in at near from to em no na nos nas de do da dos das para")

PLACES = frozenset(
    re.split(
        r",\s+",
        """brazil, brasil, portugal, spain, espanha, france, frança, germany, alemanha, italy,
        itália, england, inglaterra, scotland, escócia, ireland, irlanda, wales, united kingdom,
        reino unido, united states, estados unidos, u.s, usa, u.s.a, us, eua, canada, canadá,
        mexico, méxico, argentina, chile, peru, colombia, colômbia, venezuela, uruguay, uruguai,
        paraguay, paraguai, bolivia, bolívia, ecuador, equador, cuba, china, japan, japão,
        india, índia, russia, rússia, ukraine, ucrânia, poland, polônia, polónia, netherlands,
        holanda, países baixos, belgium, bélgica, switzerland, suíça, austria, áustria, sweden,
        suécia, norway, noruega, denmark, dinamarca, finland, finlândia, greece, grécia, turkey,
        turquia, egypt, egito, israel, iran, irã, irão, iraq, iraque, afghanistan, pakistan,
        paquistão, australia, austrália, new zealand, south africa, nigeria, kenya, angola,
        moçambique, mozambique, cabo verde, timor-leste, korea, coreia, vietnam, indonesia,
        indonésia, thailand, tailândia, philippines, hungary, hungria, romania, romênia,
        bulgaria, czech republic, slovakia, croatia, serbia, sérvia, europe, europa, africa,
        áfrica, asia, ásia, america, américa, north america, south america, américa do sul,
        américa latina, oceania, antarctica, london, londres, paris, berlin, berlim, madrid,
        rome, roma, lisbon, lisboa, porto, coimbra, braga, vienna, viena, moscow, moscou,
        moscovo, tokyo, tóquio, beijing, pequim, new york, nova york, nova iorque, washington,
        chicago, boston, los angeles, san francisco, california, califórnia, texas, florida,
        flórida, virginia, ohio, michigan, pennsylvania, new jersey, massachusetts, georgia,
        illinois, são paulo, rio de janeiro, minas gerais, bahia, paraná, pernambuco, ceará,
        amazonas, pará, goiás, brasília, distrito federal, mato grosso, mato grosso do sul,
        santa catarina, rio grande do sul, rio grande do norte, espírito santo, salvador,
        recife, fortaleza, curitiba, porto alegre, belo horizonte, manaus, belém, goiânia,
        amsterdam, amsterdã, rotterdam, hamburg, hamburgo, munich, munique, milan, milão,
        barcelona, geneva, genebra, zurich, zurique, brussels, bruxelas, dublin, edinburgh,
        oxford, cambridge, toronto, sydney, melbourne, mumbai, delhi, shanghai, xangai,
        hong kong, singapore, singapura""",
    )
)

GIVEN_NAMES = _split_words(
    """john james robert michael william david richard joseph thomas charles christopher daniel
    matthew anthony mark donald steven paul andrew kenneth george edward brian ronald kevin
    jason jeffrey ryan jacob gary nicholas eric stephen jonathan larry scott frank benjamin
    samuel gregory henry peter walter arthur albert alexander martin hans karl max louis jean
    pierre jacques mary patricia jennifer linda elizabeth barbara susan jessica sarah karen
    nancy lisa betty margaret sandra ashley emily donna michelle carol amanda anna anne maria
    marie alice helen ruth jane julia laura emma sophia joão josé antónio antônio francisco
    carlos paulo pedro lucas luiz luís luis marcos marcelo rafael gabriel bruno eduardo fernando
    jorge rui nuno miguel manuel tiago diogo ricardo roberto sérgio rodrigo felipe filipe
    gustavo andré alexandre alberto artur augusto joaquim hugo ana francisca antônia adriana
    juliana márcia fernanda patrícia aline sandra camila amanda bruna jéssica letícia júlia
    luciana vanessa mariana gabriela beatriz helena inês teresa catarina isabel sofia rosa
    cláudia cristina marta sônia vera lúcia fátima"""
)

MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "january janeiro jan",
            "february fevereiro feb fev",
            "march março marco mar",
            "april abril apr abr",
            "may maio mai",
            "june junho jun",
            "july julho jul",
            "august agosto aug ago",
            "september setembro sept sep set",
            "october outubro oct out",
            "november novembro nov",
            "december dezembro dec dez",
        ),
        1,
    )
    for name in names.split()
}
WEEKDAYS = _split_words(
    """monday tuesday wednesday thursday friday saturday sunday segunda terça quarta quinta
    sexta sábado domingo"""
)
